# A scripted architect: writes the specification, and answers the coder. Each call is one line in calls.log.
[ -n "$HOLDFAST_MESSAGE" ] && set -- answer "$HOLDFAST_MESSAGE_ID"
echo "architect $*" >> ../calls.log
while [ -e "../hold-architect-$1" ]; do sleep 0.02; done
case "$1" in
answer) echo '{"result": "15 minutes", "usage": {"input_tokens": 40, "output_tokens": 5}}' ;;
*) printf '# %s\n\nTokens are refreshed; five wrong tries lock the login.\n' "$1" > spec.md
   echo '{"result": "specification of the refresh", "usage": {"input_tokens": 300, "output_tokens": 90}}' ;;
esac
