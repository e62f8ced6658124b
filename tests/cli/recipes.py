#!/usr/bin/env python3
"""The recipes of the manual do what it says, with tokens that no double holds.

    recipes.py COMMAND ROOT
"""
import os
import re
import signal
import sqlite3
import subprocess
import sys

from cases import (HOLDFAST, case, check, equal, main, place, read, run, tool,
                   until)

ROOT = sys.argv[2] if len(sys.argv) > 2 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '..', '..')
del sys.argv[2:3]

# The next two tokens are the same number for a reader that has doubles only.
LAST_TOKEN = 2 ** 53


def recipe(name):
    """The lines below '.\\" recipe: NAME' in holdfast.1, as they are shown."""
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


def sh(p, script):
    path = os.path.dirname(HOLDFAST) + ':' + os.environ['PATH']
    done = subprocess.run(['sh', '-euc', script], env=dict(p.env, PATH=path),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    equal((done.returncode, done.stderr), (0, b''), script)
    return done.stdout.decode()


def grant_large_tokens(p):
    """What file: has on disk of the tokens that were used up."""
    os.mkdir(p.file('large'))
    with open(p.file('large/token'), 'w', encoding='ascii') as file:
        file.write(f'{LAST_TOKEN}\n')
    p.url = 'file:' + p.file('large')
    p.env['HOLDFAST_URL'] = p.url


@case
def the_manual_tells_how_to_see_whether_a_key_is_held():
    with place() as p:
        equal(sh(p, recipe('held')), 'free\n')
        p.lock('deploy')
        equal(sh(p, recipe('held')), 'held\n')


@case
def the_manual_tells_how_to_require_locks_across_machines():
    tool('jq')
    with place() as p:
        sh(p, recipe('fleet').replace('fleet', 'fence'))
        sh(p, f"if {recipe('fleet').splitlines()[1]} >&2; then false; fi 2>&1")


@case
def the_manual_tells_how_to_break_a_lock_with_jq():
    tool('jq')
    with place() as p:
        grant_large_tokens(p)
        p.lock('other')
        for _ in range(2): # one of the two is odd, which a double cannot be
            _, token = p.lock('deploy')
            check(int(token) > LAST_TOKEN, token)
            out = sh(p, recipe('break'))
            check(f'token {token} is broken' in out, out)
            equal(p.show('deploy')['forced'], True)
            p.run('force', '--now', '--token', token, 'deploy')


@case
def the_manual_tells_how_to_compare_tokens_in_javascript():
    tool('node')
    with place() as p:
        grant_large_tokens(p)
        tokens = [p.lock(key)[1] for key in ('newest', 'c', 'b', 'a')]
        equal(tokens, sorted(set(tokens), key=int))
        equal(sh(p, recipe('newer')).strip(), tokens[-1])


@case
def the_guide_tells_how_to_elect_a_leader():
    with place() as p:
        for name, text in (('leader.sh', guide_recipe('leader')),
                           ('lead.sh', '#!/bin/sh\n'
                            'echo $HOLDFAST_TOKEN >>led; exec sleep 600\n')):
            with open(p.file(name), 'w', encoding='ascii') as file:
                file.write(text)
            os.chmod(p.file(name), 0o755)
        env = dict(p.env, PATH=os.path.dirname(HOLDFAST) + ':' +
                   os.environ['PATH'])
        candidates = [subprocess.Popen(['./leader.sh'], cwd=p.path, env=env,
                                       stderr=subprocess.DEVNULL,
                                       start_new_session=True)
                      for _ in range(2)]
        try:
            until(lambda: p.waits('leader')(), 'the second candidate')
            until(lambda: read(p.file('led')), 'a leader')
            equal(len(read(p.file('led')).split()), 1)
            token = p.show('leader')['token']
            p.run('force', '--now', '--token', token, 'leader')
            until(lambda: len(read(p.file('led')).split()) == 2, 'the next')
        finally:
            for candidate in candidates:
                os.killpg(candidate.pid, signal.SIGKILL)
                candidate.wait()


@case
def the_guide_tells_how_to_fence_writes_in_sql():
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
def the_guide_has_no_option_that_is_none():
    page = read(os.path.join(ROOT, 'docs', 'from-flock.md'))
    known = {option for verb in ('run', 'lock', 'wait', 'unlock', 'doctor')
             for option in re.findall(r'--[a-z-]+', run('help', verb).out)}
    for line in re.findall(r'\bholdfast (?:run|lock|wait|unlock)\b[^`\n]*', page):
        words = line.partition(' -- ')[0]
        equal(set(re.findall(r'(?<=\s)--[a-z-]+', words)) - known, set(), line)


if __name__ == '__main__':
    main()
