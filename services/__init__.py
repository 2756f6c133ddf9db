"""The four processes of a run. No service imports another."""
