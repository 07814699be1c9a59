"""Where models come from: names that can be fetched, local folders and files, hub ids."""
