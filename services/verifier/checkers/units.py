"""Units of measurement with exact factors: enough for word problems, no more."""

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["UNITS", "Unit", "named_unit"]

PREFIXED_POWER = re.compile(r"(?P<power>square|sq\.?|cubic|cu\.?) +(?P<unit>.+)")
POWER_OF_WORD = {"square": 2, "sq": 2, "sq.": 2, "cubic": 3, "cu": 3, "cu.": 3}


@dataclass(frozen=True)
class Unit:
    """A unit: what it measures, and how many base units of that kind it is."""

    dimension: str
    factor: Fraction


def _table() -> dict[str, Unit]:
    kinds = {
        "length": {
            "m meter meters metre metres": "1",
            "km kilometer kilometers kilometre kilometres": "1000",
            "cm centimeter centimeters centimetre centimetres": "0.01",
            "mm millimeter millimeters millimetre millimetres": "0.001",
            "in inch inches": "0.0254",
            "ft foot feet": "0.3048",
            "yd yard yards": "0.9144",
            "mi mile miles": "1609.344",
        },
        "mass": {
            "g gram grams": "1",
            "kg kilogram kilograms": "1000",
            "mg milligram milligrams": "0.001",
            "lb lbs pound pounds": "453.59237",
            "oz ounce ounces": "28.349523125",
        },
        "time": {
            "s sec secs second seconds": "1",
            "ms millisecond milliseconds": "0.001",
            "min mins minute minutes": "60",
            "h hr hrs hour hours": "3600",
            "day days": "86400",
            "week weeks": "604800",
        },
        "volume": {"L l liter liters litre litres": "1", "mL ml milliliter milliliters": "0.001"},
        "money": {"dollar dollars": "1", "cent cents": "0.01"},
    }
    return {
        name: Unit(dimension, Fraction(factor))
        for dimension, units in kinds.items()
        for names, factor in units.items()
        for name in names.split()
    }


UNITS = _table()


def named_unit(text: str, power: int = 1) -> Unit | None:
    """Find a unit by name, raised to a power; None for words that are not units."""
    name = text.strip()
    worded = PREFIXED_POWER.fullmatch(name.lower())
    if worded:
        name, power = worded["unit"], POWER_OF_WORD[worded["power"]]
    unit = UNITS.get(name) or UNITS.get(name.lower())
    if unit is None or not power:
        return None
    return unit if power == 1 else Unit(f"{unit.dimension}^{power}", unit.factor**power)
