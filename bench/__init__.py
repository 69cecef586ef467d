"""The speed of holdfast, of its peers and of floors made by hand, measured side by side: `./task bench`.

The harness runs in the project's own environment; each contender runs in a fresh process and an environment of its own, where of this
package only `work`, `contenders` and `floors` are imported. So this file imports nothing.
"""
