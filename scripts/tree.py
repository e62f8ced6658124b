"""The files of this tree."""
import os
import subprocess


def list_files():
    """What a clone or a release of the tree in this folder would have, and new
    files."""
    top = subprocess.run(['git', 'rev-parse', '--show-cdup'], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         check=False)
    if top.returncode == 0 and not top.stdout.strip():
        listed = subprocess.run(
            ['git', 'ls-files', '-z', '-co', '--exclude-standard'],
            stdout=subprocess.PIPE, text=True, check=True).stdout
        return [f for f in listed.split('\0') if f and os.path.isfile(f)]
    found = []
    for folder, folders, names in os.walk('.'):
        folders[:] = [f for f in folders
                      if f not in ('.git', '.cache', 'build', '__pycache__')]
        found += [os.path.relpath(os.path.join(folder, n)) for n in names]
    return found
