# A scripted tester: writes the tests' report, or says what it holds in a conflict.
[ -n "$HOLDFAST_CONFLICT" ] && set -- position "$HOLDFAST_CONFLICT_ROUND"
echo "tester $*" >> ../calls.log
while [ -e "../hold-tester-$1" ]; do sleep 0.02; done
case "$1" in
position) echo '{"result": "lock for a minute", "usage": {"input_tokens": 30, "output_tokens": 4}}' ;;
*) ls src > tested.txt
   echo '{"result": "all parts are there", "usage": {"input_tokens": 80, "output_tokens": 10}}' ;;
esac
