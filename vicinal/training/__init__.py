"""Training: one visible loop, checkpoints that resume exactly, frozen features."""
