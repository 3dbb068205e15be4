// A process with the records of networks in its executable and a log open, until its input ends.
#include <stdio.h>

__asm__(".section .gpumem,\"a\",@progbits\n.incbin \"" RECORDS "\"\n.text\n");

int main(int count, char **arguments) {
    FILE *log = count > 1 ? fopen(arguments[1], "a") : NULL;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    return log ? fclose(log) : 0;
}
