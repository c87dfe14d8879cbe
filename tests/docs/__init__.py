"""The pages: what they show runs, and what they tell is made of code and result files."""
