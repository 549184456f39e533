"""The simulated cluster: a discrete-event simulation of a run, based on measured service times."""
