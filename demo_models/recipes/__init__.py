"""How the bundled models can be made again: `README.md` one folder up says with which commands."""
