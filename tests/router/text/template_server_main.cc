// Stands in for the router's binary where tests start the server of template workers: a test
// binary's main is Catch2's.

#include "router/text/template_server.h"

int main(int argc, char** argv) {
  weft::router::RunTemplateServerIfAsked(argc, argv);
  return 1;
}
