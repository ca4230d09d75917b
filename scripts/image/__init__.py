"""Steps of the build of an image, which run in it with the standard library only."""
