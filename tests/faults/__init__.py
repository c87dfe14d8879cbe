"""What goes wrong around a run: killed processes, cut cables, full disks, wrong clocks."""
