"""What runs behind the wall: the zygote and the children it forks, with the standard library alone.

Left without imports on purpose: the zygote imports this package without the rest of ours.
"""
