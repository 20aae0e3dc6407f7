"""What containers do that run no process: what their commands decide, print and write, and what they reach.

simulation.py           the annotations that say what a simulated pod does; usage.py: what it uses
container_scripts.py    what a container prints, how long it runs and how it ends
container_shell.py      its shell, with its variables, files and user; shell_*.py: how a shell reads a script
trivial_shell.py, file_programs.py, file_listing.py, network_programs.py, text.py    its commands
commands.py, executed.py    commands that are run in it (`kubectl exec`); standard_input.py: what was attached
files.py, file_history.py, pod_neighbours.py    its files, and who else writes them
cluster_network.py      which names resolve and which ports answer
test_images.py          what images of Kubernetes' tests do
"""
