"""Every test, and every notebook that nbval executes, computes with the same bits on every processor."""

import os

from lib.companion.sweep import portable

os.environ.update(portable.SETTINGS)  # before anything loads NumPy
