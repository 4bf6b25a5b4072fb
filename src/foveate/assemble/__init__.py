"""What systems are put together with: the contract, the pipeline, the training template, saving, capabilities."""
