extern "C" int own() { return 1; }
extern "C" int asked() { return own(); }
