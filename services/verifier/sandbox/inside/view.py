"""What a walled-in Python may see of the machine: libraries, time zones and three devices."""

__all__ = ["DEVICES", "LIBRARIES", "LINKER_CACHE", "TIME_ZONES"]

LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
TIME_ZONES = "/usr/share/zoneinfo"
LINKER_CACHE = "/etc/ld.so.cache"
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
