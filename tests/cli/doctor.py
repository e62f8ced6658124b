#!/usr/bin/env python3
"""What `doctor` finds, over stores that work and stores that do not."""
import contextlib
import os
import socket
import subprocess
import tempfile

from cases import (HOLDFAST, Skip, case, check, environment, equal, main,
                   place, run, tool, until)


def examine(*args, wanted=0, env=None):
    ended = run('doctor', '--json', *args, wanted=wanted, env=env)
    (told,) = ended.json()
    return told


def answers(path):
    """Whether a server listens: the socket is there a moment before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@contextlib.contextmanager
def redis_server(*options):
    """The URL of a server of the case's own, which dies with it."""
    program = tool('redis-server')
    with tempfile.TemporaryDirectory(prefix='holdfast-') as folder:
        path = os.path.join(folder, 'socket')
        server = subprocess.Popen(
            [program, '--port', '0', '--unixsocket', path, '--dir', folder,
             *options], stdout=subprocess.DEVNULL)
        try:
            until(lambda: answers(path), 'the server')
            yield 'redis+unix://' + path
        finally:
            server.kill()
            server.wait()


@case
def it_says_which_store_is_used_and_why():
    with place() as p:
        told = examine(env=p.env)
        equal((told['url'], told['source']), (p.url, 'HOLDFAST_URL'))
        told = examine('--url', p.url)
        equal((told['url'], told['source']), (p.url, '--url'))
        told = examine(p.url, env=environment(HOLDFAST_URL='memory:other'))
        equal((told['url'], told['source']), (p.url, 'argument'))
        equal((told['reachable'], told['problems']), (True, []))
        directory = p.url.partition(':')[2]
        check(f'directory: {directory}' in told['facts'], told)


@case
def it_leaves_nothing_behind():
    with place() as p:
        p.run('doctor')
        equal(p.run('ls').out, '')


@case
def containers_with_one_host_name_do_not_disturb_each_other():
    """In each of them it is process 1."""
    alone = ['unshare', '--user', '--map-root-user', '--pid', '--fork']
    if subprocess.run(alone + ['true'], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        raise Skip('no namespaces')
    with place() as p:
        p.run('lock', f'holdfast-doctor/{socket.gethostname()}/1')
        ended = subprocess.run(alone + [HOLDFAST, 'doctor', p.url], check=False,
                               stdout=subprocess.PIPE)
        equal(ended.returncode, 0, ended.stdout)


@case
def two_urls_contradict():
    with place() as p:
        ended = run('doctor', '--url', p.url, 'redis://:hunter2@h', wanted=64)
        check('--url' in ended.err, ended)
        check('hunter2' not in ended.err, ended)


@case
def a_long_path_is_shown_in_full():
    with place() as p:
        path = p.file('/'.join(['a' * 200] * 6))
        os.makedirs(os.path.dirname(path))
        told = examine('file:' + path)
        check(f'directory: {path}' in told['facts'], told)


@case
def a_store_of_one_machine_is_no_fleet():
    with place() as p:
        told = examine(p.url)
        check('fence' in told['capabilities'], told)
        check('fleet' in told['missing'], told)
        check(any('this machine only' in note for note in told['notes']), told)
        ended = run('ls', '--url', p.url + '?require=fleet', wanted=64)
        check('fleet' in ended.err, ended)


@case
def a_store_that_excludes_nobody_is_a_problem():
    told = examine('memory:x', wanted=64)
    check('process alone' in told['problems'][0], told)


@case
def a_server_that_is_down_is_a_problem_and_no_password_is_shown():
    url = 'redis://user:hunter2@127.0.0.1:1/'
    told = examine(url, wanted=69)
    equal((told['reachable'], told['capabilities']), (False, []))
    equal(told['error']['name'], 'HF_EUNAVAIL')
    check('start it' in told['problems'][0], told)
    for ended in (run('doctor', '--json', url, wanted=69),
                  run('doctor', url, wanted=69)):
        check('hunter2' not in ended.out + ended.err, ended)


@case
def no_password_is_shown_of_a_url_that_is_refused():
    for url in ('redis://:p/hunter2@127.0.0.1:1/',
                'redis://user:p?hunter2@127.0.0.1:1/',
                'redis://user:p@p/hunter2@127.0.0.1:1/',
                'redis:user:hunter2@127.0.0.1:1/',
                'mongodb://127.0.0.1:1/?tls=true&connectTimeoutMS=100&'
                'tlsCertificateKeyFilePassword=hunter2'):
        ended = run('doctor', url, wanted=None)
        check(ended.status in (64, 69), ended)
        check('hunter2' not in ended.out + ended.err, ended)
        check('127.0.0.1:1' in ended.out, ended)


@case
def a_directory_that_cannot_be_used_is_a_problem():
    with place() as p:
        with open(p.file('plain'), 'w', encoding='ascii'):
            pass
        ended = run('doctor', 'file:' + p.file('plain'), wanted=None)
        check(ended.status not in (0, 64), ended)
        check('\nproblem ' in ended.out, ended)


@case
def a_directory_that_others_may_write_to_is_no_server_that_is_down():
    with place() as p:
        os.mkdir(p.file('shared'))
        os.chmod(p.file('shared'), 0o777)
        told = examine('file:' + p.file('shared'), wanted=69)
        check('mode 0777' in told['error']['message'], told)
        check('server' not in told['problems'][0], told)


@case
def a_url_that_makes_no_sense_is_a_usage_error():
    told = examine('nonsense:x', wanted=64)
    equal(told['reachable'], False)
    check(told['problems'], told)


@case
def a_server_is_described():
    with redis_server() as url:
        told = examine(url)
        check('fleet' in told['capabilities'], told)
        check(any(fact.startswith('server: Redis ') for fact in told['facts']),
              told)
        check('durable' in told['missing'], told)
        check(any('appendonly' in note for note in told['notes']), told)
    with redis_server('--appendonly', 'yes', '--appendfsync', 'always') as url:
        told = examine(url)
        check('durable' in told['capabilities'], told)


@case
def a_server_that_refuses_the_user_is_a_problem():
    with redis_server('--requirepass', 'hunter2') as url:
        told = examine(url, wanted=77)
        check('password' in told['problems'][0], told)


@case
def a_server_that_grants_nothing_is_a_problem():
    with redis_server('--maxmemory', '1', '--maxmemory-policy',
                      'noeviction') as url:
        told = examine(url, wanted=69)
        equal(told['reachable'], True)
        check(told['error']['message'], told)


if __name__ == '__main__':
    main()
