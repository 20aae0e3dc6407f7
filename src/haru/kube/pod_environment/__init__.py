"""What kubelets tell the containers of a pod: variables, and the files of volumes that are made from objects. Pure.

fields               the downward API
environment          the variables of a container, and `$(NAME)` in its texts
service_environment  the variables of Services
volume_files         the files of config maps, secrets, the downward API and projections
"""
