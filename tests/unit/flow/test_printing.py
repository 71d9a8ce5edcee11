import threading

from holdfast.flow.printing import Printed, printing, redirected


def on_a_thread_of_its_own(text):
    thread = threading.Thread(target=print, args=[text])
    thread.start()
    thread.join()


def test_what_a_thread_prints_is_of_the_only_task_and_of_none_when_there_are_several(capsys):
    told = {"one": [], "two": []}
    one, two = (Printed(lambda _stream, text, name=name: told[name].append(text), 1_000) for name in told)
    with redirected(), printing(one):
        on_a_thread_of_its_own("a")
        with printing(two):
            on_a_thread_of_its_own("b")
            print("c")
    assert told == {"one": ["a\n"], "two": ["c\n"]}
    assert capsys.readouterr() == ("", "b\n")
