"""Does the skill help? The same tasks with it, without it, and without one page; and is it chosen when it should be?"""
