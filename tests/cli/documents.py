#!/usr/bin/env python3
"""The manual page and the completions agree with the command.

    documents.py COMMAND ROOT
"""
import os
import re
import subprocess
import sys
import tempfile

from cases import (HOLDFAST, alone, case, check, environment, equal, main,
                   store, read, run, tool)

ROOT = sys.argv[2] if len(sys.argv) > 2 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'scripts'))
from constants import read_list  # noqa: E402
from strategies import read_strategies  # noqa: E402

HEADER = os.path.join(ROOT, 'include', 'holdfast.h')
PAGE = os.path.join(ROOT, 'docs', 'man', 'holdfast.1')
COMPLETIONS = os.path.join(ROOT, 'completions')
COMPLETION = os.path.join(COMPLETIONS, 'holdfast.bash')
del sys.argv[2:3]


def verbs():
    return [verb['verb'] for verb in run('help', '--json', env=alone()).json()]


def options(verb):
    """The options of a verb, from its help: {'--wait': '-w', ...}."""
    shown = run('help', verb, env=alone()).out
    found = re.findall(r'^  (-\w|  )[, ] (--[a-z-]+)', shown, re.MULTILINE)
    return {name: letter.strip() for letter, name in found}


def complete(line, env=None):
    """The completions that bash offers at the end of a line."""
    bash = tool('bash')
    script = f'''
        PATH={os.path.dirname(HOLDFAST)}:$PATH
        . "{COMPLETION}" || exit
        COMP_LINE=$1 COMP_POINT=${{#1}}
        IFS=' ' read -ra COMP_WORDS <<<"$(sed 's/\\([:=]\\)/ \\1 /g' <<<"$1")"
        [[ $1 != *' ' ]] || COMP_WORDS+=('')
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _holdfast
        printf '%s\\n' "${{COMPREPLY[@]}}"
    '''
    done = subprocess.run([bash, '--norc', '-u', '-c', script, 'bash', line],
                          env=env or alone(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    equal((done.returncode, done.stderr), (0, b''), line)
    return sorted(done.stdout.decode().split())


def with_command(env):
    """An environment in which the tested command comes first in PATH."""
    env = dict(env or environment(HOLDFAST_URL='file:/dev/null/none'))
    env['PATH'] = os.path.dirname(HOLDFAST) + ':' + os.environ['PATH']
    # The leak checker can spin forever at exit if a reader such as sed(1) has
    # closed the pipe.
    env['ASAN_OPTIONS'] = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
    return env


def complete_fish(line, env=None):
    """The completions that fish offers at the end of a line."""
    with tempfile.TemporaryDirectory(prefix='holdfast-') as home:
        done = subprocess.run(
            [tool('fish'), '--no-config', '-c',
             f'source {COMPLETIONS}/holdfast.fish; complete -C $argv', line],
            env=dict(with_command(env), HOME=home), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, check=False)
    equal((done.returncode, done.stderr), (0, b''), line)
    return sorted(offer.partition('\t')[0]
                  for offer in done.stdout.decode().splitlines())


ZSH = r'''
    compadd() {
        while [[ $1 == -* ]]; do
            [[ $1 == -S ]] && shift
            [[ $1 == -- ]] && { shift; break }
            shift
        done
        print -lr -- ${(M)@:#$words[CURRENT]*}
    }
    _describe() { compadd -- ${${(P)@[-1]}%%:*} }
    _normal() { print command }
    words=(${(s: :)1}) CURRENT=$(( ${#words} ))
    [[ $1 == *' ' ]] && { words+=(''); (( CURRENT++ )) }
    . $2
'''


def complete_zsh(line, env=None):
    """The completions that zsh offers, from stubs of its functions."""
    done = subprocess.run(
        [tool('zsh'), '-fc', ZSH, 'zsh', line,
         os.path.join(COMPLETIONS, 'holdfast.zsh')],
        env=with_command(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        check=False)
    equal(done.stderr, b'', line)
    return sorted(done.stdout.decode().split())


def schemes():
    """The URL schemes of a build with every strategy."""
    return {scheme for _, scheme, _ in read_strategies(ROOT)}


def kinds():
    """The kinds of events, in the order of the header."""
    return [row[1] for row in read_list(read(HEADER), 'HF_EVENTS')]


@case
def the_manual_and_the_help_list_every_kind_of_event():
    page = read(PAGE).partition('The kinds are\n')[2].partition('.It Cm')[0]
    equal(re.findall(r'^\.Ql (\w+)', page, re.MULTILINE), kinds())
    shown = ' '.join(run('help', 'watch', env=alone()).out.split())
    listed = shown.partition('The kinds are ')[2].partition(', which')[0]
    equal(re.split(r', (?:and )?', listed), kinds())


@case
def the_manual_documents_every_verb_and_option():
    page = read(PAGE)
    for verb in verbs():
        check(f'.Cm {verb}\n' in page, 'SYNOPSIS lacks', verb)
        check(re.search(rf'^\.It Cm {verb}\b', page, re.MULTILINE), verb)
        for name, letter in options(verb).items():
            check(re.search(rf'^\.It .*Fl -{name[2:]}\b', page, re.MULTILINE),
                  'the page lacks', name)
            check(not letter or f'.It Fl {letter[1:]} ' in page,
                  'the page lacks', letter)


@case
def the_manual_documents_no_unknown_option():
    known = {name for verb in verbs() for name in options(verb)}
    named = {'-' + name for name in re.findall(r'Fl (-[a-z-]+)', read(PAGE))}
    equal(named - known, set())


@case
def the_manual_documents_every_exit_status():
    page = read(PAGE).partition('.Sh EXIT STATUS')[2].partition('.Sh')[0]
    listed = set(map(int, re.findall(r'^\.It (\d+)', page, re.MULTILINE)))
    header = read(os.path.join(ROOT, 'src', 'cli', 'failure.h'))
    defined = set(map(int, re.findall(r'STATUS_\w+ = (\d+)', header)))
    equal(listed, defined - {128})


@case
def the_manual_documents_every_json_member():
    page = read(PAGE).partition('.Ss JSON')[2].partition('.Sh')[0]
    named = set(re.findall(r'\b[a-z_]+\b', page))
    (show,) = run('show', '--json', 'k', env=alone()).json()
    (lock,) = run('lock', '--json', 'k', env=alone()).json()
    (wait,) = run('wait', '--json', 'k', env=alone()).json()
    equal((set(show) | set(lock) | set(wait)) - named, set())


@case
def the_manual_passes_mandoc_lint():
    done = subprocess.run([tool('mandoc'), '-Tlint', '-Wwarning', PAGE],
                          stdout=subprocess.PIPE, check=False)
    equal(done.stdout.decode(), '')


@case
def completion_offers_every_verb():
    equal(complete('holdfast '), sorted(verbs()))
    equal(complete('holdfast help '), sorted(verbs()))
    equal(complete('holdfast --json un'), ['unlock'])


@case
def completion_offers_exactly_the_options_of_a_verb():
    for verb in verbs():
        equal(complete(f'holdfast {verb} -'), sorted(options(verb)), verb)


@case
def completion_offers_commands_after_the_key_of_run():
    check('printenv' in complete('holdfast run -w 5 k -- printen'))
    check('printenv' in complete('holdfast run k printen'))
    equal(complete('holdfast run k -- x --tt'), [])


@case
def completion_offers_values():
    equal(complete('holdfast watch --kinds rel'), ['released'])
    equal(complete('holdfast watch --kinds '), sorted(kinds()))
    check('5s' in complete('holdfast lock --ttl '))
    equal(complete('holdfast run --note '), [])


@case
def completion_offers_held_keys():
    with store() as s:
        for key in ('deploy/web', 'deploy/db', 'a:b', 'odd key', 'other'):
            s.lock(key, '--ttl', '60s')
        equal(complete('holdfast show dep', s.env), ['deploy/db', 'deploy/web'])
        equal(complete('holdfast show ', s.env),
              ['a:b', 'deploy/db', 'deploy/web', 'other'])
        equal(complete('holdfast show a:', s.env), ['b'])
        equal(complete(f'holdfast --url {s.url} force --token 1 oth'),
              ['other'])
        equal(complete(f'holdfast ls --url={s.url} oth'), ['other'])


@case
def completion_offers_every_scheme():
    offered = complete('holdfast ls --url ')
    equal({offer.split(':')[0] for offer in offered}, schemes())
    equal(complete('holdfast doctor '), offered)


def check_shell(complete_in):
    """Check that another shell offers the same as bash."""
    equal(complete_in('holdfast '), sorted(verbs()))
    equal(complete_in('holdfast help '), sorted(verbs()))
    equal(complete_in('holdfast un'), ['unlock'])
    for verb in verbs():
        equal(complete_in(f'holdfast {verb} --'), sorted(options(verb)), verb)
    equal({offer.split(':')[0] for offer in complete_in('holdfast ls --url ')},
          schemes())
    check('5s' in complete_in('holdfast lock --ttl '))
    equal(complete_in('holdfast watch --kinds '), sorted(kinds()))
    with store() as s:
        for key in ('deploy/web', 'deploy/db', 'odd key', 'other'):
            s.lock(key)
        equal(complete_in('holdfast show dep', s.env),
              ['deploy/db', 'deploy/web'])
        equal(complete_in(f'holdfast --url {s.url} force --token 1 oth'),
              ['other'])


@case
def completion_for_fish_offers_the_same():
    check_shell(complete_fish)


@case
def completion_for_zsh_offers_the_same():
    check_shell(complete_zsh)


if __name__ == '__main__':
    main()
