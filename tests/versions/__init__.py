"""The Sparks and libraries that people have: an environment for each, and what was run in it."""
