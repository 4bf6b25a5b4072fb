"""Speed, memory and studies: every figure in the docs comes from a command in this folder."""
