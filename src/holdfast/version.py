"""This library's version: told to servers, and read by the build."""

VERSION = "0.1.0"
