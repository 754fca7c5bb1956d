# A cable between two network namespaces whose packets come in another order:
# each is late by a time of its own.
# usage: disorder.pl SEED ONE TWO    as root, with iproute2; until it is killed
use strict;
use warnings;
use Fcntl;
use Time::HiRes;

use constant { LATEST => 0.01, MOST => 2000, PACKET => 65536 };
# Of <linux/if_tun.h>: packets as they are, and how they are asked for.
use constant { IFF_TUN => 0x1001, TUNSETIFF => 0x400454ca };

srand shift;
my @cards;
for my $i (0, 1) {
  my $name = "tfdist$$-$i";
  sysopen $cards[$i], "/dev/net/tun", O_RDWR | O_NONBLOCK
    or die "/dev/net/tun: $!";
  ioctl $cards[$i], TUNSETIFF, pack "a16 s x22", $name, IFF_TUN
    or die "$name: $!";
  system("ip", "link", "set", $name, "netns", $ARGV[$i], "name", "card") == 0
    or die "$name: not moved";
}
my @late; # [when, where to, bytes]; any order
while (1) {
  my $now = Time::HiRes::time();
  my $wait = 1;
  my @left;
  for my $p (sort { $a->[0] <=> $b->[0] } @late) {
    if ($p->[0] <= $now) {
      syswrite $cards[$p->[1]], $p->[2]; # a card that is not up drops it
    } else {
      push @left, $p;
    }
  }
  @late = @left;
  $wait = $late[0][0] - $now if @late;
  my $ready = "";
  vec($ready, fileno $_, 1) = 1 for @cards;
  select $ready, undef, undef, $wait;
  $now = Time::HiRes::time();
  for my $i (0, 1) {
    while (@late < MOST && sysread $cards[$i], my $bytes, PACKET) {
      push @late, [$now + rand LATEST, 1 - $i, $bytes];
    }
  }
}
