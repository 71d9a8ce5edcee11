# Gate 4: the program does what its user sees.
said=$(python3 -SB slug.py "Hold fast, then go on!")
echo "it said: $said"
[ "$said" = hold-fast-then-go-on ]
