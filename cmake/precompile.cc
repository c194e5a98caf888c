// Does nothing: the target it is of carries the precompiled headers of others (precompile.cmake).
int main() { return 0; }
