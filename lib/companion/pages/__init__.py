"""Link the executed notebooks as pages, without executing anything: `python -m lib.pages` writes html/."""
