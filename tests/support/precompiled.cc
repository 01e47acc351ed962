// Holds what the precompiled header of tests belongs to.
int main() { return 0; }
