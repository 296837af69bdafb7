"""The demonstration: a talk that is killed in mid sentence, goes on, is rewound, and branches. `python -m antiphon.demo`."""
