"""The sandbox for programs a model wrote: the judge's side here, the side behind the wall in `inside`."""
