"""Machines that are reached through a shell: a phone over adb, an Arm Linux box over ssh."""
