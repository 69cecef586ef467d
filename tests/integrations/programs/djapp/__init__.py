"""An application with a slow migration, commands that run one at a time, and tests."""
