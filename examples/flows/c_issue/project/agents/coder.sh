# A scripted coder: writes one part of the login, or says what it holds in a conflict.
[ -n "$HOLDFAST_CONFLICT" ] && set -- position "$HOLDFAST_CONFLICT_ROUND"
echo "coder $*" >> ../calls.log
while [ -e "../hold-coder-$1" ]; do sleep 0.02; done
case "$1" in
position) [ "$2" = 1 ] && answer='lock for an hour' || answer='lock for a minute'
   echo "{\"result\": \"$answer\", \"usage\": {\"input_tokens\": 30, \"output_tokens\": 4}}" ;;
*) mkdir -p src
   if [ "$1" = join ]; then
     echo 'for part in skeleton login logout refresh limits; do . "src/$part.sh"; done' > src/join.sh
   else
     echo "echo $1" > "src/$1.sh"
   fi
   echo "{\"result\": \"$1 is done\", \"usage\": {\"input_tokens\": 200, \"output_tokens\": 60}}" ;;
esac
