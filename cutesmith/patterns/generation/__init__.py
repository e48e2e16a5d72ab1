"""From a problem to the best verified kernel: drafts, the stages over several candidates, the folder of results."""
