"""Run folders, read from Python. See results/run_folder.py and docs/run-folder.md."""
