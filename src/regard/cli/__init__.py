"""The command line: a table of commands and their bodies. Knows terminals, files and options; no mathematics."""
