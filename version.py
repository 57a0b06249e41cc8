"""The version of the distribution, in the one place that both the build and the package read."""

VERSION = "0.1.0"
