"""Speed and size beside a floor and the peers: `python -m benchmarks` prints one table.

Words. A *part* is a module with `rows(scale)`, which measures and yields the rows of one subject; a *row* is one figure
with its unit, its spread and the most that it may be. What a row is divided by (the *floor*) and what it is compared
with (the *peers*) do the same work in the same run and take turns with us, lap by lap, so that whatever else the
machine does hits all of them. Wall times are medians of laps; CPU times are means, because what happens only every so
often must count, and are of the whole process. The spread is that of five blocks of laps.
"""
