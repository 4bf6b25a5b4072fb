"""A network without its Python: what it computes as a list of plain operators, found by running it once.

Any ``nn.Module`` that is a fixed computation becomes data that way: it can be saved without pickle, rebuilt without its
code, and cut open where its feature maps and its embedding are.
"""
