"""What pods and the node use: measured at an interval, shown as the Summary API and as Prometheus' text."""
