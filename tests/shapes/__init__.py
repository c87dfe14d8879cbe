"""Delta tables in many shapes, on both engines."""
