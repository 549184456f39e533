"""A cluster on paper: a discrete-event simulation of a run, fed with measured service times."""
