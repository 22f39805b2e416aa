"""What all kinds of episode have: phase, record, words of people, last looks, marks, waiting, tries."""
