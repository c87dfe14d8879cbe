"""What earlier versions wrote is read by this one."""
