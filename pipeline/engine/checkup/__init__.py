"""What `kgqa doctor` looks at before a run: each finding with its mend."""
