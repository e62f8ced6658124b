#!/usr/bin/env python3
"""Run the examples of the manual, with tokens that a double cannot represent.

    recipes.py COMMAND ROOT
"""
import os
import re
import signal
import sqlite3
import subprocess
import sys

from cases import (HOLDFAST, case, check, equal, main, store, read, run, tool,
                   until)

ROOT = sys.argv[2] if len(sys.argv) > 2 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '..', '..')
del sys.argv[2:3]

# As doubles, the next two tokens are equal.
LAST_TOKEN = 2 ** 53


def recipe(name):
    """The lines below '.\\" recipe: NAME' in holdfast.1, as text."""
    page = read(os.path.join(ROOT, 'docs', 'man', 'holdfast.1'))
    found = re.search(rf'^\.\\" recipe: {name}\n\.Bd .*\n((?s:.*?))^\.Ed', page,
                      re.MULTILINE)
    check(found, 'the manual has no recipe', name)
    return (found[1].replace('\\&', '').replace('\\-', '-')
            .replace('\\e', '\\'))


def guide_recipe(name):
    """The block below '<!-- recipe: NAME -->' in docs/from-flock.md."""
    page = read(os.path.join(ROOT, 'docs', 'from-flock.md'))
    found = re.search(rf'^<!-- recipe: {name} -->\n```\w+\n((?s:.*?))^```', page,
                      re.MULTILINE)
    check(found, 'the guide has no recipe', name)
    return found[1]


def sh(s, script):
    path = os.path.dirname(HOLDFAST) + ':' + os.environ['PATH']
    done = subprocess.run(['sh', '-euc', script], env=dict(s.env, PATH=path),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    equal((done.returncode, done.stderr), (0, b''), script)
    return done.stdout.decode()


def grant_large_tokens(s):
    """Switch to a store that has granted tokens up to LAST_TOKEN."""
    os.mkdir(s.file('large'))
    with open(s.file('large/token'), 'w', encoding='ascii') as file:
        file.write(f'{LAST_TOKEN}\n')
    s.url = 'file:' + s.file('large')
    s.env['HOLDFAST_URL'] = s.url


@case
def the_manual_shows_how_to_check_whether_a_key_is_held():
    with store() as s:
        equal(sh(s, recipe('held')), 'free\n')
        s.lock('deploy')
        equal(sh(s, recipe('held')), 'held\n')


@case
def the_manual_shows_how_to_require_locks_across_machines():
    tool('jq')
    with store() as s:
        sh(s, recipe('fleet').replace('fleet', 'fence'))
        sh(s, f"if {recipe('fleet').splitlines()[1]} >&2; then false; fi 2>&1")


@case
def the_manual_shows_how_to_break_a_lock_with_jq():
    tool('jq')
    with store() as s:
        grant_large_tokens(s)
        s.lock('other')
        for _ in range(2): # one of the two is odd, which a double cannot be
            _, token = s.lock('deploy')
            check(int(token) > LAST_TOKEN, token)
            out = sh(s, recipe('break'))
            check(f'token {token} is broken' in out, out)
            equal(s.show('deploy')['forced'], True)
            s.run('force', '--now', '--token', token, 'deploy')


@case
def the_manual_shows_how_to_compare_tokens_in_javascript():
    tool('node')
    with store() as s:
        grant_large_tokens(s)
        tokens = [s.lock(key)[1] for key in ('newest', 'c', 'b', 'a')]
        equal(tokens, sorted(set(tokens), key=int))
        equal(sh(s, recipe('newer')).strip(), tokens[-1])


@case
def the_guide_shows_how_to_elect_a_leader():
    with store() as s:
        for name, text in (('leader.sh', guide_recipe('leader')),
                           ('lead.sh', '#!/bin/sh\n'
                            'echo $HOLDFAST_TOKEN >>led; exec sleep 600\n')):
            with open(s.file(name), 'w', encoding='ascii') as file:
                file.write(text)
            os.chmod(s.file(name), 0o755)
        env = dict(s.env, PATH=os.path.dirname(HOLDFAST) + ':' +
                   os.environ['PATH'])
        candidates = [subprocess.Popen(['./leader.sh'], cwd=s.path, env=env,
                                       stderr=subprocess.DEVNULL,
                                       start_new_session=True)
                      for _ in range(2)]
        try:
            until(lambda: s.has_waiters('leader')(), 'the second candidate')
            until(lambda: read(s.file('led')), 'a leader')
            equal(len(read(s.file('led')).split()), 1)
            token = s.show('leader')['token']
            s.run('force', '--now', '--token', token, 'leader')
            until(lambda: len(read(s.file('led')).split()) == 2, 'the next')
        finally:
            for candidate in candidates:
                os.killpg(candidate.pid, signal.SIGKILL)
                candidate.wait()


@case
def the_guide_shows_how_to_fence_writes_in_sql():
    database = sqlite3.connect(':memory:')
    database.execute('CREATE TABLE report (id INT, body TEXT, token BIGINT)')
    database.execute("INSERT INTO report VALUES (1, '', 0)")
    database.execute('CREATE TABLE fence (name TEXT PRIMARY KEY, token BIGINT)')
    for name in ('fence', 'fence-table'):
        statement = guide_recipe(name)
        for token, rows in ((5, 1), (5, 1), (7, 1), (6, 0), (7, 1), (8, 1)):
            done = database.execute(statement, {'body': 'b', 'token': token})
            equal(done.rowcount, rows, name, token)


@case
def the_guide_uses_no_unknown_option():
    page = read(os.path.join(ROOT, 'docs', 'from-flock.md'))
    known = {option for verb in ('run', 'lock', 'wait', 'unlock', 'doctor')
             for option in re.findall(r'--[a-z-]+', run('help', verb).out)}
    for line in re.findall(r'\bholdfast (?:run|lock|wait|unlock)\b[^`\n]*', page):
        words = line.partition(' -- ')[0]
        equal(set(re.findall(r'(?<=\s)--[a-z-]+', words)) - known, set(), line)


if __name__ == '__main__':
    main()
