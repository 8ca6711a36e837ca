"""The endpoints that programs call."""
