# Replans the phase, knowing what failed.
echo "$(($1 + 1))" > notes/plan
echo "plan $(($1 + 1)), because: $2" >> notes/replans.md
